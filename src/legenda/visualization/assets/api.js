"use strict";

// Renders the API reference from openapi.json of the server. Needs dom.js.

(() => {
  function resolve(schema, spec) {
    if (schema.$ref === undefined) return schema;
    return schema.$ref.split("/").slice(1).reduce((node, key) => node[key], spec);
  }

  function typeOf(schema) {
    if (schema.$ref !== undefined) return schema.$ref.split("/").pop();
    if (schema.anyOf !== undefined) return schema.anyOf.map(typeOf).join(" or ");
    if (schema.type === "array") return `list of ${typeOf(schema.items)}`;
    if (schema.contentMediaType !== undefined || schema.format === "binary") return "file";
    return schema.type ?? "any";
  }

  function limitsOf(schema) {
    const { minimum, maximum } = schema.anyOf?.find((kind) => kind.minimum !== undefined) ?? schema;
    const range = [minimum === undefined ? "" : `from ${minimum}`, maximum === undefined ? "" : `to ${maximum}`];
    const initial = schema.default === undefined ? "" : `default ${JSON.stringify(schema.default)}`;
    return [range.filter(Boolean).join(" "), initial].filter(Boolean).join(", ");
  }

  function createFields(schema, spec) {
    const { properties = {}, required = [] } = resolve(schema, spec);
    const rows = Object.entries(properties).map(([name, field]) => html("tr", {},
      html("th", { scope: "row" }, name, required.includes(name) ? " *" : ""),
      html("td", {}, typeOf(field)),
      html("td", {}, [field.description, limitsOf(field)].filter(Boolean).join("; "))));
    return html("div", { class: "scroll" }, html("table", { class: "fields" }, html("tbody", {}, ...rows)));
  }

  function createOperation(path, method, operation, spec) {
    const form = operation.requestBody?.content["multipart/form-data"]?.schema;
    const parameters = operation.parameters ?? [];
    const responses = Object.entries(operation.responses).map(([code, { description, content = {} }]) => {
      const [[kind, { schema = {} }] = ["", {}]] = Object.entries(content);
      return html("li", {}, html("strong", {}, code), ` ${description}: ${typeOf(schema)} ${kind && `(${kind})`}`);
    });
    return html("section", {},
      html("h2", {}, html("code", {}, `${method.toUpperCase()} ${path}`)),
      html("p", {}, operation.description ?? operation.summary ?? ""),
      parameters.length === 0 ? null : html("p", {}, `Path parameters: ${parameters.map(({ name }) => name).join(", ")}`),
      form === undefined ? null : html("h3", {}, "Form fields (multipart/form-data)"),
      form === undefined ? null : createFields(form, spec),
      html("h3", {}, "Responses"), html("ul", {}, ...responses));
  }

  async function render() {
    const host = document.getElementById("operations");
    const spec = await (await fetch("/openapi.json")).json();
    for (const [path, methods] of Object.entries(spec.paths)) {
      for (const [method, operation] of Object.entries(methods)) {
        host.append(createOperation(path, method, operation, spec));
      }
    }
    const schemas = Object.entries(spec.components.schemas).filter(([name]) => !/^(Body_|HTTPVal|Validation)/.test(name));
    for (const [name, schema] of schemas) {
      host.append(html("section", {}, html("h2", {}, name), html("p", {}, schema.description ?? ""),
        createFields(schema, spec)));
    }
  }

  render();
})();
