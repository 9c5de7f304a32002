package nodes

import (
	"cmp"
	"context"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/past"
	"github.com/tutti-project/tutti/internal/policy"
	"github.com/tutti-project/tutti/internal/server/core"
	"github.com/tutti-project/tutti/wire"
)

// maxLags is the largest number of exporters that one compile names. One exporter is enough to stop
// a compile.
const maxLags = 100

// The method `lags` names the exporters for which the answers of PuppetDB and of Tutti to a collector
// may differ. The exports of an exporter may differ if its catalog in PuppetDB is not its latest
// catalog in Tutti. PuppetDB's state was read before PuppetDB's answer, and Tutti's state after that
// answer. Tutti gets the exports of a catalog before PuppetDB does. So if PuppetDB stores a catalog
// between the reads of the two states, the catalog counts as not stored (ADR 0013).
func (tx *tx) lags(asker data.Asker, in wire.Question, answer []tutti.Export) []tutti.Lag {
	concerned := map[tutti.NodeName]bool{}
	for _, e := range answer {
		concerned[e.Node] = true
	}
	for name, stored := range in.Stored {
		concerned[name] = concerned[name] || stored.Found
	}
	lags := []tutti.Lag{}
	for name, is := range concerned {
		n := tx.Registry.Nodes[name]
		if !is || n == nil || name == asker.Node || !tx.inPuppetDB(n, in.Query.Type) {
			continue
		}
		has := in.Stored[name]
		if n.Catalog.CatalogUUID == "" || has.CatalogUUID != n.Catalog.CatalogUUID || has.Run != n.Catalog.Run || asker.Overlay && tx.Data.Overlaid(asker.Job, name) {
			lags = append(lags, tutti.Lag{Node: name, Run: n.Catalog.Run})
		}
	}
	slices.SortFunc(lags, func(a, b tutti.Lag) int { return cmp.Compare(a.Node, b.Node) })
	return lags[:min(len(lags), maxLags)]
}

// inPuppetDB reports whether PuppetDB should have the same exports of a node and type as Tutti. If
// the node compiles for itself, only Tutti has its exports. If the node has no grant, only PuppetDB
// has its exports.
func (tx *tx) inPuppetDB(n *fold.Node, resourceType string) bool {
	if n.Catalog.CatalogUUID == "" && tx.ProgramOf(n.Node) != tutti.ProgramAgent {
		return false
	}
	return policy.ExportsOf(tx.Fleet(), tx.Registry.Groups(n), n.Node).Most(resourceType) > 0
}

// publishStored takes the exports of a catalog that goes to PuppetDB next. The exports of the catalog
// become the exports of the catalog's node. The function records the catalog even if the exports have
// not changed. If the node had no exports before and has none now, publishStored records nothing.
func (tx *tx) publishStored(host *fold.Node, job tutti.JobID, in wire.ServedCatalog, set tutti.Digest) {
	n := tx.Registry.Nodes[in.For]
	known := n.Catalog.CatalogUUID != ""
	if in.Failed || n.Catalog.CatalogUUID == in.CatalogUUID || known && n.Exports == "" && set == "" {
		return
	}
	tx.Emit(tutti.ActorNode(host.Node), &tutti.ExportsSet{
		Node: in.For, Run: in.Run, Job: job, Set: set, Count: len(in.Exports), Exports: in.Exports, CatalogUUID: in.CatalogUUID,
	})
}

// servedToOthers takes the exports of a compile for a run that Tutti did not start. Exports
// without a grant go only to PuppetDB.
func (s *runs) servedToOthers(ctx context.Context, key tutti.NodeKey, in wire.ServedCatalog) error {
	var of core.Basis
	allow := func(tx *tx) (host *fold.Node, err error) {
		host, n, r, err := tx.servedRun(key, in.Run, in.For)
		switch {
		case err != nil:
			return nil, err
		case n == nil || r != nil:
			return nil, tutti.Errorf(tutti.CodeUnavailable, "node %s or its run %s has changed in the meantime", in.For, in.Run)
		}
		if now := tx.Basis(n); !now.Equal(of) { // if the basis is the same, the first call of `allow` has already decided
			of, in.Exports = now, policy.ExportsOf(tx.Fleet(), now.Groups, n.Node).Only(in.Exports)
		}
		return host, nil
	}
	if err := s.inVersion(ctx, func(tx *tx) error { _, err := allow(tx); return err }); err != nil {
		return err
	}
	count := len(in.Exports)
	set, err := s.StoreExports(ctx, nil, in.Exports)
	if err != nil {
		return err
	}
	return s.do(ctx, func(tx *tx) error {
		host, err := allow(tx)
		if err == nil && len(in.Exports) != count {
			err = tutti.Errorf(tutti.CodeUnavailable, "the grants of node %s have changed in the meantime", in.For)
		}
		if err == nil {
			tx.publishStored(host, "", in, set)
		}
		return err
	})
}

// checkStored refuses a catalog that PuppetDB would refuse.
func checkStored(in wire.ServedCatalog) error {
	if tutti.RunID(in.CatalogUUID).Validate() != nil {
		return tutti.Errorf(tutti.CodeInvalid, "catalog of %q: catalog_uuid %q is invalid", string(in.For), in.CatalogUUID)
	}
	if in.Run == "" { // without a run of Tutti
		return nil
	}
	return in.Run.Validate()
}

// checkLags checks the first maxLags lags and returns them.
func checkLags(lags []tutti.Lag) ([]tutti.Lag, error) {
	lags = lags[:min(len(lags), maxLags)]
	for _, l := range lags {
		if err := l.Node.Validate(); err != nil {
			return nil, err
		}
		if l.Run != "" && l.Run.Validate() != nil {
			return nil, l.Run.Validate()
		}
	}
	return lags, nil
}

// roomOf returns a function that checks whether a node may store more content. All content of the
// node together may have `most` bytes.
func (s *base) roomOf(key tutti.NodeKey, most int64) past.Room {
	return func(ctx context.Context, size int) error {
		return s.do(ctx, func(tx *tx) error {
			n, err := tx.Node(key)
			if err != nil {
				return err
			}
			return tx.mayKeep(n, int64(size), most)
		})
	}
}
