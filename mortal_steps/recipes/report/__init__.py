"""What one sees of a recipe.

view        each stage with what is known of its run
graph       where the stages of a picture stand, and how its lines go
picture     the graph as SVG
page        report.html
markdown    the page in Prefect
"""
