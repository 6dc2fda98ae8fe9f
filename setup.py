"""Which packages are installed; everything else is in pyproject.toml.

`packages.find` there cannot list packages that are installed under another name than their folder.
"""

from setuptools import find_packages, setup

RENAMED = {"mortal_deployments": "deployments", "mortal_flows": "flows", "mortal_tasks": "tasks"}

setup(
    packages=[
        *find_packages(include=["mortal", "mortal.*", "mortal_steps", "mortal_steps.*"]),
        *RENAMED,
        *(
            f"{name}.{package}"
            for name, folder in RENAMED.items()
            for package in find_packages(folder)
        ),
        "mortal_deployments.requirements",
    ]
)
