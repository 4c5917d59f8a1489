"""The values that everything else works on: mesh, rule, sharding, graph, collectives, program. No decisions."""
