"""Writing and reading the files of a model that is trained.

writing             the live model as a folder of files, while it stays as it is
restore             a saved state, read back into a trainer
exporting           a checkpoint as a model folder that every engine loads
tokenizer           the tokenizer, loaded and saved
adapter_base        the model that a LoRA adapter names as its base
"""
