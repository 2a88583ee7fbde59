// In a file of its own, so that the page needs no permission for scripts within it.
"use strict";
window.viewer = SwaggerUIBundle({
  // Without a name and a key that the address of the page may have.
  url: new URL("docs/openapi.json", location.origin + location.pathname).href,
  dom_id: "#viewer",
  deepLinking: true,
  docExpansion: "none",
  filter: true,
  tagsSorter: "alpha",
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  // Nothing is asked of anybody but the server it came from.
  validatorUrl: null,
  presets: [SwaggerUIBundle.presets.apis],
});
