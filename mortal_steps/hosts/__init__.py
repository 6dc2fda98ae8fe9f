"""Hosts: child processes in which code of users runs, which know nothing of what it is for.

process       a host as its owner sees it: started, limited, killed, replaced
forked        a fork of it
base          what both have in common: requests, and the clock that limits them
inside        what runs in them: makes the handler, calls its methods, answers, forks
answers       their answers: JSON, checked
"""
