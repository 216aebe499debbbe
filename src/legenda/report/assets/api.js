"use strict";

// The API reference: Swagger UI on the server's own description, which includes requests to try.

SwaggerUIBundle({ url: "/openapi.json", dom_id: "#swagger-ui", validatorUrl: null, tryItOutEnabled: true });
