"""The HTTP service: the application in `app`, its routes in `routes/`, requests and answers in `requests*` and
`schemas`.
"""
