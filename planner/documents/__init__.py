"""Documents: the only package that knows JSON. It turns documents into the planner's values and back.

    json_reader      files and bytes -> JSON, within limits        json_writer   JSON -> files, written whole
    canonical_json   canonical text and ids                        strict_model  the base of all document models
    schemas          graphs, meshes, pins, plans                   plan_sections the parts of a plan
    renamed_keys     old names of keys                             export_schemas  writes planner/schemas/

The other modules convert one kind of document each.
"""
