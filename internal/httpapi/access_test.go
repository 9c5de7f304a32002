package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/httpapi"
	"github.com/tutti-project/tutti/internal/metrics"
	"github.com/tutti-project/tutti/internal/servertest"
)

// The constant `byAll` and the constants below it are lists of verbs. An operator with one of these verbs, or with
// the verb `admin`, may call the route. An operator with the verb `run` may also read, and every operator may view.
const (
	byAll     = "view read run approve code data puppet nodes"
	byReaders = "read run"
)

// The map `routes` is the table of ADR 0024. It lists every route for operators, with the verbs
// that may call the route.
var routes = map[string]string{
	"jobs/start": "run", "jobs/cancel": "run", "jobs/list": byAll, "jobs/watch": byReaders, "jobs/changes": byReaders,
	"runs/record": byReaders, "runs/report": byReaders, "runs/log": byReaders, "inventory/query": byReaders,
	"tokens/create": "nodes", "tokens/list": "nodes", "tokens/revoke": "nodes", "join/ca": "admin", "join/show": "nodes",
	"operators/issue": "", "operators/renew": byAll + " none metrics", "operators/list": byAll, "operators/revoke": "", "access/explain": byAll,
	"nodes/list": byAll, "nodes/replace": "nodes", "nodes/keep": "nodes", "nodes/remove": "nodes", "nodes/pending": "nodes", "nodes/approve": "nodes", "nodes/reject": "nodes", "nodes/show": byReaders,
	"blobs/missing": "code", "blobs/put": "code", "code/push": "code", "code/release": "approve", "fleet/set": "code",
	"code/effect": byReaders + " code", "code/show": byReaders + " code", "code/read": byReaders + " code", "fleet/get": byReaders + " code",
	"code/list": byReaders + " code", "code/get": byReaders + " code", "code/retire": "code",
	"signing/operators": "code", "signing/show": byAll, "signing/code": "code", "signing/trust": "code",
	"grants/suggest": byReaders,
	"data/set":       "data", "data/unset": "data", "data/list": byReaders + " data", "data/page": byReaders + " data", "data/effect": byReaders + " data",
	"secrets/recipients": "data", "secrets/seal": "data", "secrets/recover": "data", "secrets/effect": "data", "secrets/list": byReaders + " data",
	"pauses/set": "run", "pauses/end": "run", "pauses/list": byAll,
	"explain/node": byReaders, "explain/value": byReaders, "explain/resource": byReaders, "graph": byAll, "graph/picture": byAll, "nodes/causes": byAll, "fleet/watch": byAll,
	"ca/rotate": "", "ca/rotation": byAll, "operators/follow": byAll + " none metrics",
	"audit/read": byReaders, "remote/ask": "puppet run",
	"metrics": "metrics",
}

// TestEveryRouteAndRole checks that each route refuses operators who have none of its verbs, and
// accepts all other operators.
func TestEveryRouteAndRole(t *testing.T) {
	f := servertest.Start(t)
	source := "fleet: shop\naccess:\n"
	for _, v := range tutti.Verbs {
		source += "  - {to: " + string(v) + "-er, may: " + string(v) + "}\n"
	}
	if _, err := f.SetFleet(servertest.Operator(), api.FleetSource{File: "tutti.yaml", Source: []byte(source)}); err != nil {
		t.Fatal(err)
	}
	serials := map[string]string{}
	for _, v := range tutti.Verbs {
		name := string(v) + "-er"
		issued, err := f.IssueOperator(servertest.Operator(), api.IssueOperator{Operator: name, Request: []byte("request")})
		if err != nil {
			t.Fatal(err)
		}
		serials[name] = issued.Serial
	}
	services := httpapi.Services{Jobs: f, Nodes: f, Tokens: f, Operators: f, Codes: f, Signings: f, Values: f, Pauses: f, Audits: f, Explains: f, Remotes: f, Reports: f, Secrets: f, Rotations: f, Metrics: metrics.New(metrics.Options{}).Handler()}
	handler := httpapi.NewHandler(httpapi.Options{
		Services: services,
		Admit: func(r *http.Request, verbs []tutti.Verb) (context.Context, func(), error) {
			if verbs == nil {
				t.Errorf("%s has no verbs", r.URL.Path)
			}
			return f.Admit(r.Context(), r.Header.Get("Operator"), serials[r.Header.Get("Operator")], verbs...)
		},
		Denied: func(r *http.Request, what string, cause error) {
			f.Denied(t.Context(), "operator:"+r.Header.Get("Operator"), what, cause)
		},
		Ready: f.Ready(),
	})
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	refused := func(route, operator string) bool {
		var in any = struct{}{}
		same := api.FleetSource{File: "tutti.yaml", Source: []byte(source)} // only an admin may change the fleet file
		switch route {
		case "code/effect":
			in = api.PushQuery{Fleet: same}
		case "fleet/set":
			in = same
		case "fleet/watch":
			in = api.WatchFleet{Want: []string{"nothing"}} // otherwise the stream does not end
		}
		body, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		method, path := http.MethodPost, "/v1/"+route
		if route == "metrics" {
			method, path = http.MethodGet, "/metrics"
		}
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Operator", operator)
		r.Header.Set("Content-Type", "application/json")
		if route == "blobs/put" {
			r.Header.Set("Content-Type", "application/octet-stream")
		}
		answer, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		said, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode == http.StatusNotFound && strings.Contains(string(said), "no call") {
			t.Fatalf("%s: there is no such route", route)
		}
		return answer.StatusCode == http.StatusForbidden && strings.Contains(string(said), "add to the access of the fleet file: - {to: "+operator)
	}
	if diff := cmp.Diff(services.Routes(), slices.Sorted(maps.Keys(routes))); diff != "" {
		t.Errorf("the table: -the routes +the table\n%s", diff)
	}
	for route, verbs := range routes {
		allowed := strings.Fields(verbs + " admin")
		for _, v := range append([]tutti.Verb{"none"}, tutti.Verbs...) {
			operator := string(v) + "-er"
			if want := !slices.Contains(allowed, string(v)); refused(route, operator) != want {
				t.Errorf("%s refuses %s: %t, want %t", route, operator, !want, want)
			}
		}
	}
	denied := 0
	for _, e := range f.Events() {
		if b, ok := e.Body.(*tutti.Denied); ok && strings.HasPrefix(b.Who, "operator:") && strings.Contains(b.Reason, "add to the access of the fleet file: - {to: ") {
			denied++
		}
	}
	if denied == 0 {
		t.Error("no refusal is in the audit trail")
	}
}
