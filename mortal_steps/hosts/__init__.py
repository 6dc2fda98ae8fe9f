"""Hosts: child processes in which code of users runs, which know nothing of what it is for.

process       a host as its owner sees it: started, limited, killed, replaced
inside        what runs in it: makes the handler, calls its methods, answers
answers       its answers: JSON, checked
"""
