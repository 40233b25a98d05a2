package view

// ScanDecision is the part of ReadDecision for the common form.
var ScanDecision = scanDecision
