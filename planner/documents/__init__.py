"""Documents and values: the one place that knows JSON.

reading   files and text -> JSON, within limits
ids       canonical JSON and SHA-256
schemas   the shape of graph, mesh and plan documents (pydantic), and their published JSON Schemas
graphs    graph and mesh documents <-> Graph, Mesh
plans     Plan -> plan document; plan document -> Program
"""
