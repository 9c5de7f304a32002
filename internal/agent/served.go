package agent

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/compare"
)

// room is how much of an answer the comparisons of several nodes may take. The first one always fits.
const room = tutti.MaxCatalogDiff

// compareServed compares the catalogs of nodes for two environments of the Puppet Server on this machine (ADR 0038). If not
// all comparisons fit into one answer, it leaves out the last nodes, and the caller asks for them again.
func compareServed(ctx context.Context, local Local, q tutti.ServedQuestion) ([]tutti.ServedDiff, error) {
	key := rand.Text() // both environments need the same key, and nobody else needs it
	nodes := slices.Compact(slices.Sorted(slices.Values(q.Nodes)))
	type side struct {
		catalog *compare.Catalog
		failed  string
	}
	sides := map[string]map[tutti.NodeName]side{}
	for _, environment := range []string{q.A, q.B} {
		all := map[tutti.NodeName]side{}
		err := local.Served(ctx, environment, key, nodes, func(n tutti.NodeName, raw json.RawMessage, failed string) error {
			if raw == nil {
				all[n] = side{failed: failed}
				return nil
			}
			c, err := compare.Read(raw)
			all[n] = side{catalog: &c}
			return err
		})
		if err != nil {
			return nil, tutti.Wrap("", err, "environment %s", environment)
		}
		sides[environment] = all
	}
	var out []tutti.ServedDiff
	size := 0
	for _, n := range nodes {
		one := tutti.ServedDiff{Node: n}
		a, b := sides[q.A][n], sides[q.B][n]
		if a.catalog != nil && b.catalog != nil {
			diff := compare.Complete(*a.catalog, *b.catalog)
			one.Diff = &diff
		} else {
			one.Failed = map[string]string{}
			for environment, s := range map[string]side{q.A: a, q.B: b} {
				if s.catalog == nil {
					one.Failed[environment] = tutti.Plain(s.failed, tutti.MaxErrorText)
				}
			}
		}
		raw, err := json.Marshal(one)
		if err != nil {
			return nil, err
		}
		if size += len(raw); size > room && len(out) > 0 {
			break
		}
		out = append(out, one)
	}
	return out, nil
}
