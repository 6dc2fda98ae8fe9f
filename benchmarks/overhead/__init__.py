"""What orchestration costs per step: the flow beside the bare loop and beside empty task runs."""
