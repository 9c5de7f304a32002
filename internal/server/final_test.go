package server_test

import (
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// If a run fails because of its code, it would fail again with the same code. So the server does not try
// such a run again (finding W1). If the machine caused the failure, a later run may succeed, so the
// server tries again.
func TestACompileErrorIsFinalAtOnce(t *testing.T) {
	cases := map[string]struct {
		reason  tutti.Reason
		program string
		final   bool
	}{
		"compile":                        {tutti.BecauseCompile, "", true},
		"catalog":                        {tutti.BecauseCatalog, "", true},
		"refused":                        {tutti.BecauseRefused, "", true},
		"machinery":                      {tutti.BecauseMachinery, "", false},
		"facts":                          {tutti.BecauseFacts, "", false},
		"resources":                      {tutti.BecauseResources, "", false},
		"compile of some Puppet Server":  {tutti.BecauseCompile, "mode: agent\n", false},
		"refused before a Puppet Server": {tutti.BecauseRefused, "mode: agent\n", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := servertest.Start(t)
			db := f.Join("db-01")
			f.Push(tc.program + "fleet: test\nenvironment: {name: production, path: ./code}\ngroups:\n  db: {nodes: [db-01]}\n")
			job, err := f.StartJob(servertest.Operator(), api.StartJob{Converge: &tutti.ConvergeStep{}, Mode: tutti.ModeApply})
			if err != nil {
				t.Fatal(err)
			}
			result := servertest.Result(db.MustClaim().Run, tutti.Failed)
			result.Reason = tc.reason
			if err := db.Call(wire.OpResult, result, nil); err != nil {
				t.Fatal(err)
			}
			if got := f.Job(job); (got.Verdict == tutti.VerdictFailed) != tc.final {
				t.Errorf("after one run that was failed:%s: verdict %q; want an end: %t", tc.reason, got.Verdict, tc.final)
			}
		})
	}
}
