"""A trained model as an endpoint: `mortal serve`.

    saved      what the run directory holds of which step
    folder     one whole model folder, of links to those files
    commands   the engines' own servers, by their command lines
    preparing  from a run to a server's command
    server     such a server as a process: started, answering, ended
    container  vLLM's server beside a Volume
    asking     what a client sends, and reads

None of the servers is ours: vLLM and transformers have one each.
"""
