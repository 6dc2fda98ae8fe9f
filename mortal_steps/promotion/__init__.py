"""A gate before a model is put to use: compare it with the one in use, then decide.

judging         what one model scores on held-out problems, once for all
chats           how its chats with tools are rendered: by its own template
judged_folder   what is on the disk of that
comparison      the candidate beside the incumbent: numbers, a verdict, a page
gate            all of it in its order: `Gate`
"""
