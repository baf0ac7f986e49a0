use super::Country;
use std::fmt;
use std::str::FromStr;

/// A continent. America is two, as in the paper and in MaxMind's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Continent {
    /// AF.
    Africa,
    /// AN.
    Antarctica,
    /// AS.
    Asia,
    /// EU.
    Europe,
    /// NA.
    NorthAmerica,
    /// OC.
    Oceania,
    /// SA.
    SouthAmerica,
}

/// The countries of each continent, by ISO 3166-1 (the assigned codes, and XK) and the United
/// Nations' M49 regions. Transcontinental countries are where M49 has them: Russia in Europe,
/// Turkey and Cyprus in Asia.
const COUNTRIES: [(Continent, &str, &str); 7] = [
    (
        Continent::Africa,
        "AF",
        "AO BF BI BJ BW CD CF CG CI CM CV DJ DZ EG EH ER ET GA GH GM GN GQ GW IO KE KM LR LS LY MA MG ML MR MU MW MZ NA NE NG RE \
         RW SC SD SH SL SN SO SS ST SZ TD TF TG TN TZ UG YT ZA ZM ZW",
    ),
    (Continent::Antarctica, "AN", "AQ BV GS HM"),
    (
        Continent::Asia,
        "AS",
        "AE AF AM AZ BD BH BN BT CN CY GE HK ID IL IN IQ IR JO JP KG KH KP KR KW KZ LA LB LK MM MN MO MV MY NP OM PH PK PS QA SA \
         SG SY TH TJ TL TM TR TW UZ VN YE",
    ),
    (
        Continent::Europe,
        "EU",
        "AD AL AT AX BA BE BG BY CH CZ DE DK EE ES FI FO FR GB GG GI GR HR HU IE IM IS IT JE LI LT LU LV MC MD ME MK MT NL NO PL \
         PT RO RS RU SE SI SJ SK SM UA VA XK",
    ),
    (
        Continent::NorthAmerica,
        "NA",
        "AG AI AW BB BL BM BQ BS BZ CA CR CU CW DM DO GD GL GP GT HN HT JM KN KY LC MF MQ MS MX NI PA PM PR SV SX TC TT US VC VG \
         VI",
    ),
    (
        Continent::Oceania,
        "OC",
        "AS AU CC CK CX FJ FM GU KI MH MP NC NF NR NU NZ PF PG PN PW SB TK TO TV UM VU WF WS",
    ),
    (Continent::SouthAmerica, "SA", "AR BO BR CL CO EC FK GF GY PE PY SR UY VE"),
];

impl Continent {
    /// The continent of a country.
    pub(super) fn of(country: Country) -> Option<Self> {
        let has = |list: &str| list.split(' ').any(|code| code == country.code());
        COUNTRIES.iter().find(|(.., list)| has(list)).map(|(continent, ..)| *continent)
    }

    /// Its two-letter code.
    #[must_use]
    pub fn code(self) -> &'static str {
        COUNTRIES
            .iter()
            .find(|(continent, ..)| *continent == self)
            .map_or("??", |(_, code, _)| code)
    }
}

impl FromStr for Continent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = COUNTRIES.iter().find(|(_, code, _)| code.eq_ignore_ascii_case(text));
        named.map(|(continent, ..)| *continent).ok_or_else(|| {
            format!("`{text}` is not a continent; there are AF, AN, AS, EU, NA, OC and SA")
        })
    }
}

impl fmt::Display for Continent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.code())
    }
}
