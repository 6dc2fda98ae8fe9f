"""What tools and environments offer, asked once."""

from mortal_steps.environments.processes.host import Describer


def describe_once(environment, modal=None):
    return Describer(environment=environment, modal=modal).describe()
