"""Long runs with almost no work: what grows with the number of steps?"""
