"""Workers on the nodes of a Ray cluster.

    flow -- frames --> Bridge -- Ray --> Node -- frames --> worker
    this machine       this machine      any node           the same node

Each worker has a *bridge*, a process on the flow's machine that is a driver of Ray's. The flow
itself imports no Ray: Ray's core ends its driver when it has lost the cluster's head. Ray starts a
*node* process where the worker's resources are free. It holds the worker in a local container, so
the worker has an interpreter of its own. Whatever is lost on the way, the flow sees a bridge or a
worker that was lost, and the pool starts another one.

Data goes through the run directory, which lies on a file system that all nodes share.
"""
