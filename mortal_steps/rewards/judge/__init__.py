"""A language model that scores completions, behind an OpenAI-compatible API.

question        what is asked, the digest by which its answer is known, and the grade in an answer
endpoint        one request, and what each way to fail means
ledger          answers and what they cost, in the run directory
environment     the reward environment: each question asked once, retried, recorded
"""
