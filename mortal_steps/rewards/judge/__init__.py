"""A language model that scores completions, behind an OpenAI-compatible API.

question.py      what is asked, and the digest by which its answer is known
reading.py       from an answer to a score, or to the reason why there is none
endpoint.py      one request, and what each way to fail means
limits.py        how much may be asked at a time and a minute
shared_limits.py the same over all runs of a Prefect server
ledger.py        answers and what they cost, in the run directory
judge.py         many questions: each asked once, retried, recorded
environment.py   the reward environment
"""
