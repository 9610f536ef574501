/* What the HTTPS front serves: enrolment, login, late renewal, the CA and health, as JSON. Parsing
 * happens on the front's thread, the rest on the loop and the store. */
#pragma once

#include "common/err.h"
#include "orchestrator/http_front.h"

struct orchestrator;

extern const struct http_route front_routes[];

/* The HTTP status that says the same. */
int front_status(enum err_code code);
