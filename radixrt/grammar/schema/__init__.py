"""JSON Schemas as users write them (draft 2020-12), made ready for backends that enforce less.

text --load--> value --check--> sound schema --rewrite--> equal schema in fewer keywords, or a refusal
"""
