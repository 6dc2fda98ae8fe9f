"""Seven nights that nobody watches, with a fault every few seconds: what is left in the morning?"""
