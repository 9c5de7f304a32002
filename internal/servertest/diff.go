package servertest

import (
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// Permit returns code with one manifest, and the operator's permission to compile it until a time.
func Permit(environment, manifest string, until time.Time) tutti.SignedCode {
	out := Sign(tutti.CodeManifest{Version: 1, Environment: environment, Files: map[string]tutti.CodeFile{
		CodePath: {Digest: tutti.DigestOf([]byte(manifest)), Size: int64(len(manifest))},
	}})
	said := tutti.SignedCompile{Fleet: FleetID, Environment: environment, Digest: tutti.DigestOf(out.Manifest), Until: until}
	out.Signature, out.Statement = nil, new(State(tutti.StatementCompile, said, "operator"))
	return out
}

// StartDiff starts a job in which nodes compile code with one manifest, and never apply it.
func (f *Fleet) StartDiff(manifest string, nodes ...tutti.NodeName) (tutti.JobID, error) {
	f.t.Helper()
	if _, err := f.PutBlob(Operator(), []byte(manifest)); err != nil {
		f.t.Fatal(err)
	}
	return f.StartJob(Operator(), api.StartJob{Mode: tutti.ModeCompile, Diff: &api.NodeDiff{
		Nodes: nodes, Code: Permit("production", manifest, time.Now().Add(time.Hour)),
	}})
}
