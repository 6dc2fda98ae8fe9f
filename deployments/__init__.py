"""Modal's app, its images, and the shipped configurations."""

import sys

if __name__ != "mortal_deployments":
    # `modal run -m deployments.modal_app` in a checkout means the package under the name that
    # containers have it by.
    import mortal_deployments.modal_app

    sys.modules[__name__] = mortal_deployments
    sys.modules[f"{__name__}.modal_app"] = mortal_deployments.modal_app
