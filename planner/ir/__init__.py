"""The nouns: mesh, rule, sharding, op table, graph, collectives, program. No decisions are taken here."""
