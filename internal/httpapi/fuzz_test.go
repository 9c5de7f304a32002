package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/hostile"
	"github.com/tutti-project/tutti/internal/httpapi"
	"github.com/tutti-project/tutti/internal/servertest"
)

const fuzzFleet = "fleet: f\ngroups: {db: {nodes: [db-01]}}\nplans: {deploy: {steps: [{run: db}]}}\n"

var bodies = [][2]string{
	{"jobs/start", `{"plan":"deploy","mode":"noop"}`}, {"jobs/cancel", `{"job":"deploy-1","reason":"r","now":true}`}, {"jobs/list", `{}`},
	{"runs/record", `"00000000-0000-4000-8000-000000000001"`}, {"tokens/create", `{"name":"web-*","groups":["web"],"ttl":3600000000000}`},
	{"join/ca", `{"ca":"ca one","no_crl":true}`}, {"join/show", `{}`}, {"nodes/pending", `{}`}, {"nodes/approve", `{"node":"db-01","groups":["web"]}`},
	{"nodes/reject", `{"node":"db-01"}`},
	{"tokens/list", `{}`}, {"tokens/revoke", `"t"`}, {"operators/list", `{}`}, {"operators/revoke", `{"operator":"eve","reason":"r"}`},
	{"operators/issue", `{"operator":"eve","request":"AAAA","code_key":true}`}, {"operators/renew", `{"request":"AAAA"}`},
	{"nodes/list", `{}`}, {"nodes/replace", `"db-01"`}, {"nodes/remove", `"db-01"`}, {"blobs/missing", `["` + string(tutti.DigestOf(nil)) + `"]`},
	{"blobs/put", "content"}, {"code/push", `{"manifest":"eyJ2IjoxfQ==","signature":"c2lnbmVkIGJ5IHRoZSBvcGVyYXRvcg=="}`},
	{"fleet/set", `{"file":"a.yaml","source":"ZmxlZXQ6IGEK"}`}, {"fleet/get", `{}`}, {"data/set", `{"key":"a/b","value":{"a":[1,2.50,null]}}`},
	{"data/unset", `"shared/x"`}, {"data/list", `"shared"`}, {"jobs/watch", `{"job":"","follow":true}`}, {"audit/read", `{"after":1,"acts":true}`},
	{"nodes/show", `"db-01"`}, {"explain/node", `"db-01"`}, {"explain/value", `"shared/x"`}, {"explain/resource", `{"node":"db-01","resource":"File[/x]"}`},
	{"graph", `"db"`}, {"graph/picture", `"db"`},
	{"enrol", `{"token":"t","secret":"AAAA","name":"web-01","key":"` + string(servertest.Key("web-01")) + `","box_key":"AAAA","signature":"AAAA"}`},
}

// FuzzCall checks that the server answers every request with JSON and a status
// that belongs to a code. A refused request changes nothing, and the server
// continues to work.
func FuzzCall(f *testing.F) {
	for i, b := range bodies {
		for seed := range uint64(4) {
			f.Add(uint8(i), []byte(b[1]), seed*31)
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, body []byte, seed uint64) {
		fleet := servertest.Start(t)
		node := fleet.Join("db-01")
		fleet.Push(fuzzFleet)
		if err := fleet.SetValue(servertest.Operator(), "shared/x", json.RawMessage("1")); err != nil {
			t.Fatal(err)
		}
		fleet.Start("deploy", tutti.ModeApply)
		node.Pass()
		handler := httpapi.NewHandler(httpapi.Options{
			Services: httpapi.Services{Jobs: fleet, Nodes: fleet, Tokens: fleet, Operators: fleet, Codes: fleet, Signings: fleet, Values: fleet, Pauses: fleet, Audits: fleet, Explains: fleet, Remotes: fleet, Reports: fleet, Secrets: fleet, Rotations: fleet},
			Admit: func(r *http.Request, _ []tutti.Verb) (context.Context, func(), error) {
				return tutti.WithActor(r.Context(), "operator:ada"), func() {}, nil
			},
			Denied: func(*http.Request, string, error) {},
			Ready:  fleet.Ready(),
		})
		before := len(fleet.Events())
		name := bodies[int(which)%len(bodies)][0]
		answer := httptest.NewRecorder()
		request := httptest.NewRequest(http.MethodPost, "/v1/"+name, bytes.NewReader(hostile.Mangle(body, seed)))
		handler.ServeHTTP(answer, request)
		checkHTTP(t, name, answer)
		appended := fleet.Since(before)
		if answer.Code != http.StatusOK && slices.ContainsFunc(appended, func(kind string) bool { return kind != "audit.denied" }) {
			t.Errorf("%s was refused with %d, and there is %v", name, answer.Code, appended)
		}
		again := fleet.Restart()
		if _, err := again.GetFleet(t.Context()); err != nil {
			t.Errorf("after that: %v", err)
		}
	})
}

func checkHTTP(t *testing.T, name string, answer *httptest.ResponseRecorder) {
	t.Helper()
	last := bytes.TrimSpace(answer.Body.Bytes())
	if i := bytes.LastIndexByte(last, '\n'); i >= 0 {
		last = last[i:]
	}
	if !json.Valid(last) {
		t.Errorf("%s: %d with %.200q", name, answer.Code, answer.Body)
	}
	if answer.Code == http.StatusOK {
		return
	}
	var e struct {
		Code    tutti.Code
		Message string
	}
	err := json.Unmarshal(last, &e)
	refusals := []tutti.Code{tutti.CodeInvalid, tutti.CodeNotFound, tutti.CodeConflict, tutti.CodeRefused, tutti.CodeUnauthenticated}
	if err != nil || e.Message == "" || len(e.Message) > tutti.MaxErrorText || !slices.Contains(refusals, e.Code) {
		t.Errorf("%s: %d with %.200q, %v", name, answer.Code, answer.Body, err)
	}
}
