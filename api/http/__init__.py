"""The service over HTTP.

app       routes, handlers and frame put together
plans     what is asked of plans; events: their incumbents as they come
reports   a plan's report, and the page at `/`
answers   what is answered at once: validations, comparisons, reshards, exports
webhooks  who is told when a plan has ended
house     hardware, limits, health, metrics
schemas   what is answered, and how requests are described
openapi   the description of it all
problems  errors as RFC 9457 says
limits    bodies counted, rates
reading   the store read, at once or in a thread
queries   query parameters nobody described, refused
security  keys, and the headers of every answer
"""
