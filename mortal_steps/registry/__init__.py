"""The models that are in use, by name; each name is a folder of the models directory:

    models/<name>/
      production           a link to one of the versions: what is in use, for whoever loads a model
      versions/<version>/  a plain `from_pretrained` folder, committed under its digests
      versions/<version>.json   where it is from
      history/000001.json  every decision about this name, oldest first
      judged/<key>/        what one version has scored on some held-out problems
      lock                 held while production moves

Nothing in it needs the run that a model is from. The history is the truth and the link follows it.
"""
