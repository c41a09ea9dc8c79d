"""`RuntimeEndpoint`: programs and plain calls on a server that `radixrt serve` started.

A session (`session`) sends each node as soon as what it continues is known, as a request of its own with the whole
context (`nodes`, `requests`); replies (`replies`) become the events that an embedded worker would have told. HTTP is
`http`, and what a server refuses becomes the typed error that it was there (`errors`).
"""
