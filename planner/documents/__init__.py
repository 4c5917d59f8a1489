"""Documents and values: the one place that knows JSON.

reading   files and text -> JSON, within limits
writing   JSON -> files, whole or not at all
ids       canonical JSON and SHA-256
strict    what documents are made of (pydantic)
schemas   the shape of graph, mesh, pins and plan documents; results: the parts of a plan that are numbers
publish   writes their JSON Schemas to planner/schemas/
graphs    graph and mesh documents <-> Graph, Mesh
programs  instructions <-> Program
plans     Plan -> plan document
reports   what a report shows of plan documents; drawings: a program as columns to draw
"""
