package tutti_test

import (
	"testing"
	"time"

	"github.com/tutti-project/tutti"
)

// An epoch number is accepted up to a hundred years above the present time or the last seen number.
func TestAnEpochThatNobodyBegins(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	today := uint64(now.UnixMilli())
	for what, tc := range map[string]struct {
		seen, epoch uint64
		now         time.Time
		code        tutti.Code
	}{
		"the first one":                         {0, 1, now, ""},
		"of today":                              {1, today, now, ""},
		"of a clock that was ahead":             {today, today + tutti.EpochStep, now, ""},
		"of a thief":                            {today, tutti.MaxEpoch - 1, now, tutti.CodeRefused},
		"one too many":                          {today, today + tutti.EpochStep + 1, now, tutti.CodeRefused},
		"the next one after what a thief said":  {today + tutti.EpochStep, today + tutti.EpochStep + 1, now, ""},
		"of today, for a clock that is behind":  {0, today, time.Date(1950, 1, 1, 0, 0, 0, 0, time.UTC), ""},
		"the highest one of all, after another": {tutti.MaxEpoch - tutti.EpochStep, tutti.MaxEpoch, now, ""},
	} {
		if err := (tutti.Epoch{Number: tc.epoch}).Plausible(tutti.Epoch{Number: tc.seen}, tc.now); tutti.CodeOf(err) != tc.code {
			t.Errorf("%s: %v, want code %q", what, err, tc.code)
		}
	}
}
