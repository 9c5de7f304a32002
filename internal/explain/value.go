package explain

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/data"
)

// ExplainValue implements tutti.Explains.
func (rd *Reader) ExplainValue(ctx context.Context, key string) (api.ValueExplanation, error) {
	out := api.ValueExplanation{Key: key}
	if err := tutti.ValidateKey(key); err != nil {
		return out, err
	}
	err := rd.look(ctx, func(v View) error {
		if v, found := v.Data.Value(key); found {
			out.Value = &v
		}
		out.Declared = v.Data.Declarers(key)
		out.Readers = v.Data.Readers(tutti.Query{Kind: tutti.QueryValue, Key: key})
		out.Hiera = v.hieraFeed(key)
		return nil
	})
	if err != nil {
		return out, err
	}
	if out.Versions, err = rd.versions(ctx, key); err != nil {
		return out, err
	}
	if out.Value == nil && len(out.Versions)+len(out.Readers)+len(out.Declared) == 0 && (out.Hiera == nil || len(out.Hiera.Readers) == 0) {
		return out, tutti.Errorf(tutti.CodeNotFound, "there is no value %q, and no node asks for it; see: tutti data list", key)
	}
	if v := out.Value; v != nil && v.Run != "" {
		out.Run = &api.RunView{Run: v.Run, Job: v.Job, Node: v.Owner}
	}
	return out, rd.runs(ctx, out.Run)
}

// hieraFeed returns the hiera key that a value sets, and the nodes that look this key up. The method returns nil if
// the value sets no hiera key.
func (v View) hieraFeed(path string) *api.HieraFeed {
	node, key, ok := data.HieraKey(path)
	if !ok {
		return nil
	}
	out := &api.HieraFeed{Key: key, Node: node}
	for _, reader := range v.Data.Readers(tutti.Query{Kind: tutti.QueryHiera, Key: key}) {
		if node != "" && reader != node {
			continue
		}
		own := data.HieraPaths(reader, key)[0]
		if _, hidden := v.Data.Value(own); hidden && node == "" {
			out.Hidden = append(out.Hidden, reader)
			continue
		}
		out.Readers = append(out.Readers, reader)
	}
	return out
}

// The method `versions` returns the past values of a key, the latest one first. The values come from the log and the
// latest snapshot. Changes by operators also come from the audit trail.
func (rd *Reader) versions(ctx context.Context, key string) ([]api.ValueVersion, error) {
	t, err := rd.trail(ctx, key)
	if err != nil {
		return nil, err
	}
	found := t.values[key]
	if t.through > 0 {
		err := rd.past.ReadAudit(ctx, api.ReadAudit{Acts: true}, func(entry api.AuditEntry) error {
			var e tutti.Event
			if err := json.Unmarshal(entry.Raw, &e); err != nil {
				return tutti.Wrap(tutti.CodeDamaged, err, "entry %d of the audit trail", entry.Seq)
			}
			e.Seq = entry.Seq
			switch e.Body.(type) {
			case *tutti.ValueSet, *tutti.ValueUnset, *tutti.SecretSealed:
				if e.Body.ID() == key {
					found = append(found, version(e))
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(found, func(a, b api.ValueVersion) int { return cmp.Compare(b.Seq, a.Seq) })
	return slices.CompactFunc(found, func(a, b api.ValueVersion) bool { return a.Seq == b.Seq }), nil
}
