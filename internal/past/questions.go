package past

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
)

// StoredQuestions contains the questions of a run in normal form, and the digest of the blob in which
// they are stored.
type StoredQuestions struct {
	Content *tutti.Questions
	Digest  tutti.Digest
}

// StoreQuestions stores the questions of a run as blobs. Runs with equal questions share one blob. The hiera keys
// that were not found are in a separate blob, because these keys are the same for all nodes of one role.
func (p *Past) StoreQuestions(ctx context.Context, room Room, reads []tutti.Read, keys []tutti.KeyRead) (StoredQuestions, error) {
	content, err := normalAsked(reads, keys)
	if err != nil {
		return StoredQuestions{}, err
	}
	if len(content.Keys) > 0 {
		if content.Absent, err = p.Store(ctx, room, content.Keys); err != nil {
			return StoredQuestions{}, tutti.Wrap("", err, "keep %d absent hiera keys", len(content.Keys))
		}
	}
	digest, err := p.Store(ctx, room, content)
	if err != nil {
		return StoredQuestions{}, tutti.Wrap("", err, "keep %d reads", len(content.Reads))
	}
	return StoredQuestions{p.asked.share(digest, content), digest}, nil
}

// Room checks whether there is room for `size` more bytes of new content. If the Room is nil, there is always room.
type Room func(ctx context.Context, size int) error

// Store stores content as a blob of JSON, if the blob is not stored already.
func (p *Past) Store(ctx context.Context, room Room, content any) (tutti.Digest, error) {
	raw, err := json.Marshal(content)
	if err != nil {
		return "", err
	}
	digest := tutti.DigestOf(raw)
	has, err := p.opts.Blobs.Has(ctx, digest) // usually true, because most runs ask the same questions as earlier runs
	if err == nil && !has && room != nil {
		err = room(ctx, len(raw))
	}
	if err == nil && !has {
		_, err = p.opts.Blobs.Put(ctx, raw)
	}
	return digest, err
}

// normalAsked returns the questions of a run in normal form. Runs that ask the same questions and get the same
// answers have the same normal form.
func normalAsked(reads []tutti.Read, keys []tutti.KeyRead) (*tutti.Questions, error) {
	type keyed struct {
		key  string
		read tutti.Read
	}
	all := make([]keyed, 0, len(reads))
	for _, r := range reads {
		q, err := data.NormalQuery(r.Query)
		if err != nil {
			return nil, err
		}
		if r.Digest != "" {
			if err := r.Digest.Validate(); err != nil {
				return nil, err
			}
		}
		key, err := json.Marshal(q)
		if err != nil {
			return nil, tutti.Wrap(tutti.CodeInvalid, err, "a read")
		}
		all = append(all, keyed{string(key), tutti.Read{Query: q, Found: r.Found, Digest: r.Digest}})
	}
	slices.SortStableFunc(all, func(a, b keyed) int { return cmp.Compare(a.key, b.key) })
	all = slices.CompactFunc(all, func(a, b keyed) bool { return a.key == b.key })
	out := &tutti.Questions{Reads: make([]tutti.Read, 0, len(all))}
	for _, k := range all {
		out.Reads = append(out.Reads, k.read)
	}
	for _, k := range keys {
		if !k.Found {
			out.Keys = append(out.Keys, k.Key)
		}
	}
	slices.Sort(out.Keys)
	out.Keys = slices.Compact(out.Keys)
	return out, nil
}

// loadAsked returns the questions that StoreQuestions has stored. The function reads the blob only if the content is not
// in memory.
func (p *Past) loadAsked(ctx context.Context, digest tutti.Digest) (*tutti.Questions, error) {
	if known := p.asked.known(digest); known != nil {
		return known, nil
	}
	raw, err := p.opts.Blobs.Get(ctx, digest)
	if err != nil {
		return nil, tutti.Wrap("", err, "what a run asked")
	}
	var out tutti.Questions
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, tutti.Wrap(tutti.CodeInternal, err, "what a run asked")
	}
	if out.Absent != "" {
		if out.Keys, err = p.loadAbsent(ctx, out.Absent); err != nil {
			return nil, tutti.Wrap("", err, "absent hiera keys")
		}
	}
	return p.asked.share(digest, &out), nil
}

func (p *Past) loadAbsent(ctx context.Context, digest tutti.Digest) ([]string, error) {
	if keys := p.asked.keys(digest); keys != nil {
		return keys, nil
	}
	raw, err := p.opts.Blobs.Get(ctx, digest)
	if err != nil {
		return nil, err
	}
	var keys []string
	err = json.Unmarshal(raw, &keys)
	return keys, tutti.Wrap(tutti.CodeInternal, err, "decode")
}
