"""A project on a local control plane of Modal, and blows for its runs."""
