"""Tables, figures and pages, made from results files only."""

from darkbayes.report.fitted.page import caution_lines as caution_lines
from darkbayes.report.fitted.words import guarantee_line as guarantee_line
from darkbayes.report.page import check_figure as check_figure
from darkbayes.report.page import write_image as write_image
from darkbayes.report.run import Presentation as Presentation
from darkbayes.report.run import RunWords as RunWords
from darkbayes.report.run import write_figure as write_figure
from darkbayes.report.run import write_report as write_report
from darkbayes.report.tables import Names as Names
from darkbayes.report.tables import best_of_all as best_of_all
from darkbayes.report.tables import measured as measured
from darkbayes.report.tables import number as number
from darkbayes.report.tables import pivot as pivot
from darkbayes.report.tables import terminal as terminal
from darkbayes.report.teachers import chains_line as chains_line
from darkbayes.report.teachers import choices_line as choices_line
