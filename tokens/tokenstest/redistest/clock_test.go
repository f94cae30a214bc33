package redistest_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"snowgate/tokens/tokenstest/redistest"
)

func TestStepClock(t *testing.T) {
	t.Parallel()
	s := redistest.StartWithClock(t)
	ahead := func(command ...string) time.Duration {
		seconds, _, _ := strings.Cut(s.Do(command...), "\n")
		unix, err := strconv.ParseInt(seconds, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return time.Until(time.Unix(unix, 0))
	}
	s.Do("SET", "k", "v", "EX", "7200")
	for _, step := range []struct{ by, want time.Duration }{
		{0, 0}, {time.Hour, time.Hour}, {-3 * time.Hour, -2 * time.Hour}, {2 * time.Hour, 0},
	} {
		s.StepClock(step.by)
		for _, command := range [][]string{{"TIME"}, {"EVAL", "return redis.call('TIME')", "0"}} {
			if got := ahead(command...); (got - step.want).Abs() > time.Minute {
				t.Errorf("%s is %v ahead, want %v", command[0], got, step.want)
			}
		}
	}
	if s.Do("EXISTS", "k") != "1" {
		t.Error("a key that lives for two hours is gone")
	}
	s.StepClock(3 * time.Hour)
	if s.Do("EXISTS", "k") != "0" {
		t.Error("a key that lives for two hours is there after three")
	}
}
