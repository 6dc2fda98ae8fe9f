"""The processes of environments, as the rollout worker sees them.

host, interpreter  the process that has imported the tools and environments of a run
cells              those of a shard, forked from it: opened, asked all at once, closed
cell               one of these: asked, and built anew when it is lost
process            one process, asked once
faults, attempts   what goes wrong there, and when it is tried again
waiting            what the episodes of a shard wait for
"""
