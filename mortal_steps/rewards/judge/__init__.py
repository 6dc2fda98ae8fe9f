"""A language model that scores completions, behind an OpenAI-compatible API.

question.py      what is asked, and the digest by which its answer is known
reading.py       from an answer to a score, or to the reason why there is none
endpoint.py      one request, and what each way to fail means
ledger.py        answers and what they cost, in the run directory
judge.py         many questions: each asked once, retried, recorded
place.py         the run whose ledger that is
environment.py   the reward environment
"""
