"""A trained model as an endpoint: `mortal serve`.

    saved      what the run directory holds of which step
    folder     one whole model folder, of links to those files
    export     what no engine can load becomes such a folder
    base       the model that an adapter belongs to, or that lends its tokenizer
    commands   the engines' own servers, by their command lines
    preparing  from a run to a server's command
    server     such a server as a process: started, answering, ended
    container  vLLM's server beside a Volume
    asking     what a client sends, and reads

None of the servers is ours: vLLM and transformers have one each.
"""
