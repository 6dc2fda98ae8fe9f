"""`mortal doctor`, and where the server keeps its history."""
