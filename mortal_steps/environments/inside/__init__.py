"""What runs in the processes of environments, with the code of users."""
