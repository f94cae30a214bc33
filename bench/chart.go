package main

import (
	"fmt"
	"html"
	"slices"
	"strings"
)

// chart is a bar chart with a whisker from the smallest to the largest figure of
// each bar. It is drawn by hand: forty lines against a library that would be the
// largest dependency here.
type chart struct {
	title string
	bars  []bar
}

type bar struct {
	name    string
	figures series
}

func (c *chart) add(name string, figures series) { c.bars = append(c.bars, bar{name, figures}) }

// svg draws the chart.
func (c *chart) svg() string {
	const (
		width, left, right   = 900, 230, 70
		top, rowHeight, wide = 36, 26, 16
	)
	largest := 0.0
	for _, b := range c.bars {
		largest = max(largest, slices.Max(append(series{0}, b.figures...)))
	}
	at := func(figure float64) float64 { return left + figure/max(largest, 1e-9)*(width-left-right) }
	height := top + rowHeight*len(c.bars) + 8
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`+"\n", width, height, width, height)
	fmt.Fprintf(&out, `<rect width="100%%" height="100%%" fill="#fff"/><text x="8" y="22" font-size="15">%s</text>`+"\n", html.EscapeString(c.title))
	for i, b := range c.bars {
		colour := "#9bb1c9"
		if strings.HasPrefix(b.name, ours) {
			colour = "#e08e45"
		}
		y := top + i*rowHeight
		middle := float64(y) + wide/2
		fmt.Fprintf(&out, `<text x="%d" y="%d" text-anchor="end">%s</text>`, left-8, y+13, html.EscapeString(b.name))
		fmt.Fprintf(&out, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`, left, y, at(b.figures.median())-left, wide, colour)
		if len(b.figures) > 0 {
			fmt.Fprintf(&out, `<path d="M%.1f %.1fH%.1f" stroke="#333"/>`, at(slices.Min(b.figures)), middle, at(slices.Max(b.figures)))
			fmt.Fprintf(&out, `<text x="%.1f" y="%d">%.*f</text>`, at(slices.Max(b.figures))+6, y+13, decimals(b.figures.median()), b.figures.median())
		}
		out.WriteString("\n")
	}
	out.WriteString("</svg>\n")
	return out.String()
}

// decimals keeps about three digits.
func decimals(figure float64) int {
	if figure < 100 {
		return 1
	}
	return 0
}
