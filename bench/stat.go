package main

import (
	"fmt"
	"slices"
)

// series is one figure over all rounds.
type series []float64

// of picks one figure of each element.
func of[T any](list []T, pick func(T) float64) series {
	figures := make(series, 0, len(list))
	for _, element := range list {
		figures = append(figures, pick(element))
	}
	return figures
}

// median returns the middle one, 0 if there is none.
func (s series) median() float64 { return s.quantile(0.5) }

// quantile returns the figure below which that share of all lies, between two of
// them if need be, and 0 if there is none.
func (s series) quantile(share float64) float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	at := share * float64(len(sorted)-1)
	below := int(at)
	above := min(below+1, len(sorted)-1)
	return sorted[below] + (at-float64(below))*(sorted[above]-sorted[below])
}

// spread returns the quartiles with that many decimals: half of the figures are between
// them.
func (s series) spread(decimals int) string {
	if len(s) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.*f – %.*f", decimals, s.quantile(0.25), decimals, s.quantile(0.75))
}

// over divides turn by turn, so that what slows both at that time cancels out.
func (s series) over(reference series) series {
	var ratios series
	for i := range min(len(s), len(reference)) {
		ratios = append(ratios, s[i]/reference[i])
	}
	return ratios
}

func perRequest(c cost) float64 { return c.perRequest }
