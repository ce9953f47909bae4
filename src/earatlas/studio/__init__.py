"""Studio: a local web page to separate recordings, learn heads, make scenes and listen live.

`earatlas studio` serves a page on 127.0.0.1. The server process imports no numerical library, so
that the page is available immediately; worker processes do the computations.

    browser ── http ──▶ server ── JSON lines ──▶ worker: heads, recordings, scenes, live, explainer
               safety     │                        │
                          session, jobs            ▼
                                            folder of the session
"""
