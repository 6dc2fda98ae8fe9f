"""Another run from a checkpoint of one."""
