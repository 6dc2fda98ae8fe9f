"""The policy over HTTP, as OpenAI's and vLLM's clients ask for it.

messages   what a request asks for, and what it is answered
dialects   the bodies of requests and answers, one class for each path
server     `Server`: HTTP on this machine, whoever answers
endpoint   `Endpoint`: what environments outside of the run sample from
"""
