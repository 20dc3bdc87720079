"""Kinds of columns: the identifiers of HIPAA's Safe Harbor, quasi-identifiers and sensitive attributes.

Source: 45 CFR 164.514(b)(2), the eighteen identifiers that Safe Harbor removes; the words for them in English,
German, French, Spanish, Italian, Dutch and Portuguese. Quasi-identifiers and sensitive attributes: what the
literature's examples have.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

Role = Literal["identifying", "quasi", "sensitive", "insensitive"]

_GERMAN = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ß": "ss"})


@dataclass(frozen=True)
class Kind:
    """A kind of column, recognized by a pattern of the words of its name, joined by ``_``, or of its values, in RE2.

    From a ``share`` of matching values on, the values decide; with ``many`` they must also have many distinct values:
    texts that look like names may be categories.
    """

    name: str
    role: Role
    words: str | None = None
    content: str | None = None
    share: float = 0.5
    many: bool = False


_PERSON = (
    "patient(?:en|in)?|person|people|customer|client|user|member|employee|staff|student|pupil|citizen|resident|voter|"
    "doctor|physician|nurse|subject|participant|respondent|insured|subscriber|kunde|kunden|mitarbeiter|versicherten?|"
    "personal|einwohner|schueler|studenten?|mandant(?:en)?|arzt|benutzer|nutzer|usuario|cliente|paciente|utilisateur|paziente|medico|dipendente|utente|klant|medewerker|gebruiker|"
    "empleado|empregado|funcionario|medecin|salarie|inwoner|aluno|alumno|etudiant|studente"
)
_QUALIFIER = (
    "total|net|gross|annual|yearly|monthly|weekly|daily|hourly|average|avg|mean|base|basic|current|first|last|main|"
    "primary|secondary|principal|final|admission|admitting|discharge|hospital|medical|clinical|health|patient|personal|"
    "household|family|own|chronic|acute|other|known|is|has|had|code|codes|name|text|type|kind|class|category|group|"
    "level|status|band|range|bracket|amount|result|description|desc|list|per|in|of|year|month|week|day|hour|usd|eur|gbp|"
    "chf|dollars?|euros?|gain|loss|brutto|netto|jahres|monats|haupt|neben|aufnahme|entlass|monatlich|jaehrlich"
)
"""Words that do not change the meaning of a sensitive word beside them, unlike others: `bill_length_mm`."""
_OF_MONEY = r"(?!(?:.*_)?(?:codes?|type|kind|name|text|list|status|nr|zone)(?:_|$))"
"""Beside a word of money, these words denote a code instead of an amount."""
_BEFORE, _AFTER = rf"(?:(?:{_QUALIFIER}|\d+)_)*", rf"(?:_(?:{_QUALIFIER}|\d+))*"

_OF_HEALTH = (
    f"{_QUALIFIER}|history|hx|dx|ever|prior|previous|past|baseline|follow_?up|pre|post|max|min|fasting|serum|plasma|blood|urine|"
    "mg|dl|mmol|mol|ml|pct|percent|score|index|count|cnt|size|stages?|grade|grading|site|location|severity|duration|onset|"
    "flag|yn|ind|indicator|positive|negative|pos|neg|test|tests|use|self|rated|reported|general|mother|father|parents?|maternal|"
    "breast|lung|colon|colorectal|rectal|prostate|skin|liver|kidney|brain|cervical|ovarian|bladder|gastric|pancreatic|"
    "gest|gestational|mom|pulmonary|heart|cardiac|coronary|vascular|renal|infectious|mental|diastolic|systolic|resting|primary|"
    "med|meds|new|active|stadium|stadien|stadio|stade|estadio|estadi[oa]mento|grado|grad|graad|art|groesse|dauer|tipo|"
    "status|anzahl|wert|valore|valor|valeur|waarde|d[ie]"
)
"""Words that do not change the meaning of a word of health beside them: `tumor_size`, `family_history_of_cancer`."""
_BEFORE_HEALTH, _AFTER_HEALTH = (
    rf"(?:(?:{_OF_HEALTH}|\d+)_)*",
    rf"(?:_?(?:{_OF_HEALTH}|\d+))?(?:_(?:{_OF_HEALTH}|\d+))*",
)

_DISEASES = (
    r"(?:pre_?)?diab(?:et(?:es|ics?|iker|ico|ica|ique|e))?|t_?[12]_?dm|dm_?[12]|tumou?r(?:s|en|e|es|i|ale)?|tumeurs?|neoplas(?:ms?|ia|ie)|"
    r"cancers?|krebs|kanker|cancro|carcinom(?:as?|e)|karzinom|leuka?emi(?:a|e)|leucemi[ae]|lymphom(?:a|e)?|linfoma|"
    r"melanom(?:a|e)?|sarcom(?:a|e)?|metasta(?:sis|ses|sen|si|tic)|asthma|asthme|astma|asma|copd|bpco|epoc|emphysema|"
    r"hypertension|hypertonie|hypertensive|hypertensie|ipertensione|hipertension|hipertensao|bluthochdruck|"
    r"high_?(?:blood_?(?:pressure|sugar)|bp|chol(?:esterol)?)|hbp|stroke|schlaganfall|heart_?(?:attack|disease|failure|problems?)|herzinfarkt|"
    r"(?:myocardial_)?infarct(?:ion|us)?|infarkt|coronary_artery_disease|chd|ckd|angina|arrhythmia|atrial_fibrillation|"
    r"(?:hyper)?cholesterolemia|depress(?:ion|ione|ive|ao|ie)|depresion|anxiety|angststoerung|ansiedad|ansia|anxiete|ansiedade|"
    r"schizophreni[ae]|bipolar|psychos(?:is|e)|dementia|demenz|demence|demencia|demenza|alzheimers?|parkinsons?|epileps(?:y|ie)|"
    r"epilepsia|autism|autismus|adhd|ptsd|hepatitis(?:_[a-e])?|tuberculos(?:is|e|i)|tuberkulose|malaria|covid(?:_?19)?|influenza|"
    r"hiv|aids|sida|syphilis|chlamydia|gonorrh(?:ea|oea)|hpv|arthritis|osteoporosis|psoriasis|eczema|an[a]?emia|obesity|obese|"
    r"adipositas|obesidad|obesidade|obesita|obesite|migraine|pneumonia|bronchitis|seps(?:is|e)|hay_?fever|heuschnupfen|polio|colitis|(?:peptic_?)?ulcers?|headaches?|kopfschmerzen|"
    r"weak_?heart|infections?|infektion(?:en)?|infeccion|infezione|infectie|infeccao"
)
_LAB_VALUES = (
    r"(?:hb_?)?a_?1_?c|creatinine?|creatinina|kreatinin|creat|e?gfr|glucose|glukose|glucosa|glicemia|glycemi[ae]|blutzucker|"
    r"cholesterol|cholesterin|cholesterine?|colesterolo?|chol|ldl|hdl|triglyceri(?:des?|de)|triglyzeride|trigliceri(?:di|dos|deos)|"
    r"ha?emoglobine?|haemoglobin|hgb|ha?ematocrit|hct|platelets?|platelet_count|thrombozyten|leukocytes|leukozyten|wbc|rbc|crp|"
    r"c_reactive_protein|albumin|bilirubin|sgot|sgpt|ggt|alk_?phos|alkaline_phosphatase|psa|tsh|ferritin|insulin|troponin|"
    r"cd_?[48]|viral_?load|viruslast|sbp|dbp|(?:systolic|diastolic)(?:_?(?:bp|blood_?pressure))?|systolisch|diastolisch|"
    r"blood_?(?:pressure|type|group|sugar|glucose|test)|bp|blutdruck|bloeddruk|presion_arterial|tension_arterielle|"
    r"pressione_arteriosa|pressao_arterial|heart_?rate|pulse_?rate|herzfrequenz|spo_?2|oxygen_saturation|fev_?1?|fvc|ecg|ekg|"
    r"apgar|ecog(?:_?ps)?|karnofsky|gleason|nyha|tnm|histolog(?:y|ie)|bone_?density"
)
_CODES_OF_HEALTH = r"icd(?:_?\d+)?(?:_?(?:cm|gm|o))?|atc|snomed(?:_?ct)?|loinc|drg|ndc|cpt|hcpcs|opcs|read_code|diag"
_TOO_SHORT = r"(?!(?:h?bp|psa)(?:_?\d+)*$)"
"""Words of health that alone often mean something else: `bp` British pounds, `hbp` hit by a pitch."""
_NUMBER = "id|ids|uid|pid|nr|no|num|number|nummer|key|code|kennung|schluessel|numero|identifier"

NAME, ADDRESS, PLACE, ZIP, BIRTH, DATE, YEAR, AGE, COORDINATE, OTHER_CODE, SEX, RACE, FAMILY, WORK, ICD, HEALTH = (
    "names",
    "geographic subdivisions: a street address",
    "geographic subdivisions",
    "geographic subdivisions: a ZIP or postal code",
    "dates: of birth",
    "dates",
    "dates: a year",
    "age",
    "geographic subdivisions: coordinates",
    "any other unique number or code",
    "sex or gender",
    "race, ethnicity, nationality",
    "family",
    "education and work",
    "ICD-10 codes",
    "health",
)
BELIEF = "belief, politics, sexual life, crime"
HOUSEHOLD = "household numbers, which all members of a household share"
SURVEY_WEIGHT = "sampling weights, which tell the stratum of a person"

KINDS: tuple[Kind, ...] = (
    Kind(
        "e-mail addresses",
        "identifying",
        r"e?_?mail|e_mail(?:_?addresse?)?|email_?(?:addresse?|adresse)?|correo(?:_?electronico)?|courriel|posta_?elettronica|indirizzo_?e_?mail|"
        r"e_?mail_?adres|adresse_?e?_?mail",
        r"[^@\s]+@[^@\s]+\.[A-Za-z]{2,}",
        0.01,
    ),
    Kind(
        "URLs",
        "identifying",
        r"url|uri|website|web_?site|homepage|web_?page|link|href",
        r"(?i)(https?|ftp)://\S+|www\.\S+",
        0.01,
    ),
    Kind(
        "IP addresses",
        "identifying",
        r"ip|ip_?v?[46]?|ip_?addr(?:ess)?e?|ip_?adresse",
        r"(\d{1,3}\.){3}\d{1,3}|([0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]{1,4}|[0-9A-Fa-f:]+::[0-9A-Fa-f:]*",
        0.01,
    ),
    Kind(
        "device identifiers and serial numbers",
        "identifying",
        r"device(?:_?(?:id|nr|no|number|serial))?|serial(?:_?(?:nr|no|number))?|imei|imsi|mac|mac_?addr(?:ess)?|udid|"
        r"seriennummer|geraete?_?(?:nummer|id|nr)|implant_?(?:id|number|serial)",
        r"([0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}",
        0.01,
    ),
    Kind(
        "social security numbers",
        "identifying",
        r"ssn|social_?security(?:_?(?:nr|no|num|number))?|sin|nino|national_?(?:id|insurance)(?:_?(?:nr|no|number))?|"
        r"tax_?(?:id|number|no)|tin|steuer_?(?:id|nummer|nr)|sozialversicherungs_?(?:nummer|nr)|sv_?(?:nummer|nr)|"
        r"rentenversicherungs_?(?:nummer|nr)|ahv_?(?:nummer|nr)?|dni|curp|nss|numero_securite_sociale|nir|niss|codice_?fiscale|bsn|"
        r"burgerservice_?nummer|nif|nie|cpf|avs",
        r"\d{3}-\d{2}-\d{4}|\d{2} ?\d{6} ?[A-Z] ?\d{3}",
        0.01,
    ),
    Kind(
        "account numbers",
        "identifying",
        r"(?:bank_?)?account(?:_?(?:id|nr|no|num|number))?|iban|bic|konto|konto_?(?:nummer|nr)|depot_?(?:nummer|nr)|"
        r"(?:credit_?|debit_?)?card_?(?:nr|no|num|number)|credit_?card|kredit_?karten?(?:_?(?:nummer|nr))?|"
        r"(?:numero_(?:de_)?)?(?:cuenta|compte|conto|conta)|rekening_?nummer|cartao_(?:de_)?credito|carta_di_credito",
        r"[A-Z]{2}\d{2}( ?[A-Z0-9]{4}){3,7}( ?[A-Z0-9]{1,3})?|(\d{4}[ -]?){3}\d{4}",
        0.01,
    ),
    Kind(
        "medical record numbers",
        "identifying",
        r"mrn|medical_?record(?:_?(?:id|nr|no|num|number))?|(?:chart|case|encounter|admission|visit|fall|akten?|"
        r"krankenakten?|aufnahme|behandlungs)_?(?:id|nr|no|number|nummer)",
    ),
    Kind(
        "health plan beneficiary numbers",
        "identifying",
        r"(?:health_?)?(?:plan|beneficiary|insurance|policy|subscriber|medicare|medicaid)_?(?:id|nr|no|number)|nhs|"
        r"nhs_?(?:nr|no|number)|kvnr|versicherungs_?(?:nummer|nr)|versicherten_?(?:nummer|nr|id)|"
        r"krankenkassen_?(?:nummer|nr)|krankenversicherungs?_?(?:nummer|nr)",
    ),
    Kind(
        HOUSEHOLD,
        "identifying",
        rf"(?:hh|house_?hold|family|fam|haushalts?|familien|menage|hogar|famiglia|huishouden|agregado)_?(?:{_NUMBER}|serial)|"
        rf"id_?(?:hh|household|family|menage|hogar|famiglia|agregado|huishouden)|idmen|idhogar|idfam",
    ),
    Kind(
        "certificate and license numbers",
        "identifying",
        r"(?:driver|driving|drivers)?_?(?:license|licence)(?:_?(?:id|nr|no|number))?|certificate(?:_?(?:id|nr|no|number))?"
        r"|passport(?:_?(?:id|nr|no|number))?|(?:personal)?_?ausweis(?:_?(?:nummer|nr))?|reisepass(?:_?(?:nummer|nr))?|"
        r"fuehrerschein(?:_?(?:nummer|nr))?|pasaporte|passeport|passaporto|paspoort|passaporte|patente|rijbewijs",
    ),
    Kind(
        "vehicle identifiers",
        "identifying",
        r"vin|license_?plate|licence_?plate|number_?plate|plate(?:_?(?:nr|no|number))?|kfz_?kennzeichen|kennzeichen|"
        r"nummernschild|fahrgestell_?(?:nummer|nr)|vehicle_?(?:id|nr|no|number)|matricula|immatriculation|targa|"
        r"kenteken|telaio",
        r"[A-HJ-NPR-Z0-9]{17}",
    ),
    Kind(
        "biometric identifiers",
        "identifying",
        r"biometrics?|finger_?prints?|iris(?:_?scan)?|retina|voice_?(?:print|sample)|dna|genome|face_?(?:id|embedding)|"
        r"fingerabdruck|stimmprobe|signature|unterschrift",
    ),
    Kind(
        "full-face photographs",
        "identifying",
        r"photos?|photographs?|pictures?|images?|avatar|selfie|portrait|foto|fotos|bild|bilder|lichtbild|imagen",
    ),
    Kind(
        NAME,
        "identifying",
        rf"(?:first|last|given|family|middle|maiden|birth|full|sur|fore|nick|user|{_PERSON}|mother|father|spouse|contact|"
        r"geburts|vor|nach|familien|zu|ruf|benutzer)_?(?:name|namen)|surname|initials|vorname|nachname|"
        r"apellidos?|nombres?|prenoms?|noms?|nom_(?:de_)?famille|nome|cognome|sobrenome|apelido|naam|voornaam|achternaam|"
        r"familienaam|roepnaam|primeiro_nome|nombre_completo|nome_completo|login|username|firstname|lastname|"
        rf"(?:{_PERSON}|doctor|physician|mother|father|spouse)_?nm",
    ),
    Kind(
        "telephone numbers",
        "identifying",
        r"(?:tele|cell|mobile|home|work|smart)?_?phone(?:_?(?:nr|no|num|number))?|tel|tel_?(?:nr|no|number)|mobile|cell|"
        r"mobile_?(?:nr|no|num|number)|telefon(?:_?(?:nummer|nr))?|handy(?:_?(?:nummer|nr))?|mobil(?:_?(?:nummer|nr|telefon))?|rufnummer|telefono|"
        r"movil|portable|pager|whatsapp|telephone|telefoon(?:_?nummer)?|mobiel|cellulare|telefone|telemovel|celular|"
        r"numero_(?:de_)?(?:telephone|telefono|telefone)",
        r"(\+|00)\d[\d ()/.-]{6,18}|\(\d{2,5}\)[\d /.-]{4,14}|\d{3}[ .-]\d{3}[ .-]\d{4}|0\d{2,4}([ /]\d{4,9}|-\d{5,9})",
    ),
    Kind("fax numbers", "identifying", r"(?:tele)?_?fax(?:_?(?:nr|no|num|number|nummer))?"),
    Kind(
        ADDRESS,
        "identifying",
        r"(?:street|home|mail|mailing|postal|billing|shipping|work)?_?addr(?:ess)?(?:_?(?:line)?_?\d)?|adresse|anschrift|"
        r"street(?:_?(?:name|nr|no|number))?|strassen?(?:_?(?:name|nummer|nr))?|str|house_?(?:nr|no|number)|"
        r"haus_?(?:nummer|nr)|calle|rue|direccion|domicilio|indirizzo|via|numero_civico|adres|straat(?:_?naam)?|huis_?nummer|"
        r"endereco|morada|rua|logradouro|po_?box|postfach|wohnanschrift|hausnummer",
        r"\d+[A-Za-z]? \p{L}[\p{L}\d .,'’-]*|\p{L}[\p{L} .'’-]* \d+ ?[A-Za-z]?",
        0.8,
        many=True,
    ),
    Kind(
        ZIP,
        "quasi",
        r"zip(?:_?\d)?|zip_?codes?(?:_?\d)?|postal_?codes?|post_?codes?|plz|postleitzahl|code_?postal|codigo_?postal|codice_?postale|"
        r"cap|cp|cep",
        r"\d{5}(-\d{4})?|[A-Z]{1,2}\d[A-Z\d]? ?\d[A-Z]{2}",
        0.9,
        many=True,
    ),
    Kind(
        COORDINATE,
        "quasi",
        r"(?:[a-z]+_)?(?:lat|lon|lng|long|latitude|longitude|breitengrad|laengengrad)|coord(?:inate|enada)?s?|latitud|"
        r"longitud|latitudine|longitudine|breedtegraad|lengtegraad",
    ),
    Kind(
        "geographic subdivisions: exact coordinates",
        "identifying",
        None,
        r"\(?-?\d{1,3}\.\d{3,}[,;] ?-?\d{1,3}\.\d{3,}\)?",
        0.5,
    ),
    Kind(
        PLACE,
        "quasi",
        r"(?:home|native|birth|work|residence|of)?_?(?:city|town|village|municipality|county|district|borough|parish|"
        r"precinct|region|province|state|country|land|nation|continent|place|location|area|neighbou?rhood)"
        r"(?:_?(?:name|code|num))?|stadt|gemeinde|kreis|landkreis|bezirk|bundesland|kanton|wohnort|geburtsort|ort|"
        r"geburtsland|herkunftsland|staat|ciudad|municipio|provincia|pais|ville|pays|commune|departement|comune|"
        r"citta|regione|paese|stato|nazione|stad|plaats|woonplaats|gemeente|provincie|cidade|concelho|freguesia|distrito|"
        r"estado|localidad|localidade|(?:census_?)?tract|fips",
    ),
    Kind(
        BIRTH,
        "quasi",
        r"(?:date_?of_?)?birth(?:_?(?:date|day|dt|month))?|dob|birthdate|birthday|geburtsdatum|geburtstag|geboren(?:_am)?|"
        r"geb_?datum|date_?(?:de_?)?naissance|fecha_?(?:de_?)?nacimiento|bdate|"
        r"data_?(?:di_?|de_?)?(?:nascita|nascimento)|nascimento|nascita|nacimiento|naissance|geboorte_?datum|geboren_op",
    ),
    Kind(
        YEAR,
        "quasi",
        r"(?:[a-z]+_)?(?:year|jahr|yr|annee|anio|anno|jaar)(?:_?(?:of|de|di)_?[a-z]+)?|"
        r"geboortejaar|an[no]+_?(?:di_?|de_?)?(?:nascita|nascimento)|annee_?(?:de_?)?naissance|birthyear|[a-z]+jahr|jahrgang|yob",
    ),
    Kind(
        DATE,
        "quasi",
        r"(?:[a-z]+_)*(?:date|datum|day|month|monat|tag|fecha|timestamp|datetime|dt)(?:_[a-z]+)*|[a-z]+datum|[a-z]+date|"
        r"admission|discharge|admitted|discharged|died|death|deceased|aufnahme|entlassung|todestag|"
        r"(?:created|updated|modified)(?:_at|_on)?|[a-z]+_(?:at|on)|i?death_?(?:mon|month|day|date)|"
        r"data_(?:di_|de_|da_)?(?:ricovero|dimissione|ingresso|entrada|saida|admissao|alta|iscrizione|compra|registo|ordine|"
        r"visita)|mese|giorno|mes|dia|mois|jour|maand|dag",
        r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}.*)?|\d{1,2}[./]\d{1,2}[./](\d{2}|\d{4})",
        0.8,
    ),
    Kind(
        AGE,
        "quasi",
        r"(?:[a-z]+_)?age(?:_?(?:in_?)?(?:years|yrs|group))?|age_(?:at|of)_[a-z_]+|alter|lebensalter|altersgruppe|edad|eta|"
        r"leeftijd|idade",
    ),
    Kind(
        SEX, "quasi", r"sex|gender|geschlecht|sexe|sexo|genero|genre|sesso|genere|geslacht|anrede|salutation|pronouns?"
    ),
    Kind(
        RACE,
        "quasi",
        r"race|hispanic|ethnic(?:ity)?|ethnic_?(?:group|origin)|ethnie|herkunft|nationality|citizenship|nationalitaet|"
        r"staatsangehoerigkeit|staatsbuergerschaft|nationalite|nacionalidad|raza|tribe|caste|language|sprache|"
        r"muttersprache|mother_?tongue|nazionalita|cittadinanza|etnia|razza|nationaliteit|nacionalidade|raca|lingua|taal|"
        r"idioma|langue",
    ),
    Kind(
        FAMILY,
        "quasi",
        r"marital(?:_?status)?|civil_?status|familienstand|etat_?civil|estado_?civil|relationship|household_?size|"
        r"children|(?:num(?:ber)?_?(?:of_?)?)?(?:children|kids|dependents|kinder)|kinderzahl|haushaltsgroesse|stato_?civile|"
        r"burgerlijke_?staat|situation_?(?:familiale|matrimoniale)|situacao_?familiar|figli|kinderen|filhos|enfants|hijos",
    ),
    Kind(
        WORK,
        "quasi",
        r"education(?:_?(?:level|num|years))?|degree|school(?:ing)?|bildung|bildungsabschluss|schulabschluss|abschluss|"
        r"occupation|profession|job(?:_?(?:title|name))?|work_?class|employment(?:_?status)?|employer|industry|beruf|"
        r"taetigkeit|arbeitgeber|branche|position|title|titel|rank|department|abteilung|profesion|metier|"
        r"niveau_?(?:d_?)?etudes?|diplome|estudios|nivel_?(?:de_?)?(?:estudios|educacion)|ocupacion|empleo|istruzione|"
        r"titolo_?(?:di_?)?studio|professione|occupazione|lavoro|opleiding(?:s_?niveau)?|beroep|escolaridade|profissao|"
        r"ocupacao|habilitacoes",
    ),
    Kind(
        SURVEY_WEIGHT,
        "quasi",
        r"(?:(?:sampl(?:e|ing)|survey|person|population|design|analysis|analytic|final|base|post_?strat(?:ification)?|household|replicate|"
        r"probability|inverse_probability|expansion|pspw?|an|d|p|w|hh|per|pw)_?)(?:weights?|weighting|wght|wgt|wt)|weights|weighting|"
        r"(?:weight|wgt|wght|wt)_?(?:final|sample|survey|person|pop|hh|int|mec)(?:_?\d*yr)?|wt(?:int|mec|ssall|ss|supp|saf)(?:_?\d*_?yr)?|"
        r"(?:fnl|final|fin|llcp|asec|marsup|person)_?(?:wgt|wt|wght)|perwt|hhwt|slwt|expansion_factor|"
        r"(?:stichproben|erhebungs|hochrechnungs|person(?:en)?|haushalts)_?gewicht(?:ung)?|gewichtung(?:sfaktor)?|hochrechnungs_?faktor|"
        r"ponderation|poids_?(?:de_)?sondage|factor_?(?:de_)?expansion|fexp|ponderacion|ponderador|peso_?campionario|"
        r"coefficiente_di_riporto|peso_amostral|fator_de_expansao|wegingsfactor|weegfactor",
    ),
    Kind(
        "build of the body",
        "quasi",
        r"height|weight|bmi|groesse|koerpergroesse|gewicht|koerpergewicht|eye_?colou?r|"
        r"hair_?colou?r|augenfarbe|haarfarbe",
    ),
    Kind(
        HEALTH,
        "sensitive",
        rf"{_TOO_SHORT}{_BEFORE_HEALTH}(?:{_DISEASES}|{_LAB_VALUES}|{_CODES_OF_HEALTH}|"
        r"diagnos[ei]s|diagnose|diagnosen|diagnosed|diseases?|illness(?:es)?|disorders?|symptoms?|(?:co_?|multi_?)morbidit(?:y|ies)|"
        r"comorb|komorbiditaet(?:en)?|comorbilid?ad(?:es)?|comorbidita|comorbidades?|charlson|complications?|komplikation(?:en)?|"
        r"treatments?|therap(?:y|ies)|(?:chemo|radio|immuno|hormone?|psycho)_?therap(?:y|ie|ia)|chemo|medications?|drugs?|dos(?:e|es|age|is|ierung)|"
        r"posologie|dosificacion|dosaggio|prescriptions?|surger(?:y|ies)|transplant(?:ation)?|medical_(?:condition|problem|complaint|procedure)|"
        r"procedure_codes?|allerg(?:y|ies)|hiv|pregnan(?:t|cy)|gravida|gestation(?:al)?(?:_age)?|smok(?:er|ing|es|ed)|smoke|raucher|rauchen|"
        r"rauchstatus|fumador|fumatore|fumeur|roker|alcohol|alcoholism|alkohol|alcool|substance_(?:use|abuse)|addiction|"
        r"contracepti(?:on|ves?)|birth_?control|mental_?health|health(?:_?status)?|gesundheit(?:szustand)?|salud|sante|"
        r"disab(?:ility|ilities|led)|handicap(?:ped)?|behinderung(?:sgrad)?|pflegegrad|discapacidad|disabilita|invalidite|deficiencia|"
        r"vaccin(?:e|ation|ated)|immuni[sz]ations?|lab_(?:results?|values?)|test_result|cause_of_death|todesursache|causa_de_muerte|"
        r"cause_(?:de|du)_deces|prognosis|relapse|remission|recurrence|readmi(?:ssion|tted)|hospitali[sz](?:ed|ations?)|krankheit(?:en)?|erkrankung(?:en)?|vorerkrankung(?:en)?|"
        r"befund|laborwerte?|therapie|medikamente?|medikation|blutgruppe|symptome?n?|beschwerden|schwanger(?:schaft)?|impfung|"
        r"diagnosi|malattia|diagnostico|diagnostic|enfermedad|doenca|maladie|ziekte|farmaco|medicamento|medicament|"
        r"sintom[ao]s?|sintomi|klachten|allergien?|alergias?|allergie[es]n?|tratamiento|tratamento|traitement|"
        r"trattamento|behandlung|behandeling|medicijn(?:en)?|medicaments|medicamentos|farmaci|embarazo|gravidanza|grossesse|"
        r"gravidez|zwanger(?:schap)?|vacuna|vaccino|vacina|"
        r"htn|[tnm]_stage|ajcc(?:_stage)?|ca_?(?:125|15_?3|19_?9)|vitamin_?(?:b_?12|d[23]?)|aufnahmegrund)"
        rf"{_AFTER_HEALTH}",
    ),
    Kind(
        BELIEF,
        "sensitive",
        rf"{_BEFORE}(?:religion|religious(?:_(?:belief|affiliation))?|faith|denomination|konfession|glaube|religione|religie|religiao|"
        r"political_(?:party|affiliation|views?|opinions?|orientation)|partei|trade_union|gewerkschaft|"
        r"sexual(?:_?(?:orientation|ity))|criminal_(?:record|history|offen[cs]e|conviction)s?|convictions?|"
        r"parti_politique|partido_politico|partito_politico|politieke_partij|syndicat|sindacato|sindicato|vakbond|"
        r"orientation_sexuelle|orientacion_sexual|orientacao_sexual|orientamento_sessuale|seksuele_geaardheid|"
        r"sexuelle_orientierung|casier_judiciaire|antecedentes_(?:penales|criminais)|strafblad|fedina_penale|croyance|geloof|"
        rf"straftat|vorstrafen?){_AFTER}",
    ),
    Kind("scores of a person", "sensitive", rf"{_BEFORE}(?:credit_?score|schufa|gpa){_AFTER}"),
    Kind(
        "money",
        "sensitive",
        rf"{_OF_MONEY}{_BEFORE}(?:salary|income|wages?|earnings|pay|payments?|bonus|debts?|loan|balance|assets|wealth|net_?worth|"
        r"costs?|price|charges?|bill_amount|fees?|revenue|capital_(?:gain|loss)|gehalt|einkommen|lohn|verdienst|"
        rf"schulden|vermoegen|kosten|preis|betrag|saldo|umsatz|salaire|revenu|salario|sueldo|ingresos|"
        r"(?:jahres|monats|brutto|netto|haushalts)(?:gehalt|einkommen|lohn)|remuneration|retribuzione|ordenado|vencimento|"
        rf"loon|reddito|stipendio|inkomen|salaris|rendimento|renda){_AFTER}",
    ),
    Kind(ICD, "quasi", None, r"[A-TV-Z]\d[0-9AB]\.[0-9A-Z]{1,4}|[A-TV-Z]\d{2}", 0.9),
    Kind(
        OTHER_CODE,
        "identifying",
        r"(?:[a-z]+_)*(?:uuid|guid|token|session|cookie|barcode|fingerprint|hash)(?:_?id)?|"
        rf"(?:{_PERSON})_?(?:{_NUMBER})|[a-z]*kunden(?:nummer|nr)|patienten?_?(?:nummer|nr)|personal_?(?:nummer|nr)|"
        r"matrikel_?(?:nummer|nr)|mitglieds_?(?:nummer|nr)|rowid|row_?(?:id|number)|record_?(?:id|number)",
        r"\{?[0-9A-Fa-f]{8}-?([0-9A-Fa-f]{4}-?){3}[0-9A-Fa-f]{12}\}?",
        0.01,
    ),
    Kind(
        NAME,
        "identifying",
        r"(?:[a-z]+_)*(?:name|names|namen?)|patient|person|customer|kunde|employee|mitarbeiter|doctor|arzt|physician",
        r"\p{Lu}[\p{L}'’.-]+(,? \p{Lu}[\p{L}'’.-]*){1,3}",
        0.8,
        many=True,
    ),
)
"""The kinds in order: the first match of a column's name decides."""

MENTION_PATTERNS: Mapping[str, tuple[str, float]] = {
    "e-mail addresses": (r"(?s).*[^@\s]@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}.*", 0.0),
    "telephone numbers": (
        r"(?s)(.*[^\d.])?(\+\d[\d ()/.-]{7,17}\d|\(\d{2,5}\) ?\d{3}[\d /.-]{3,9}|\d{3}[ .-]\d{3}[ .-]\d{4}|"
        r"0\d{2,4}[ /-]\d{5,9}|0\d([ .]\d{2}){4})([^\d].*)?",
        0.01,
    ),
}
"""Identifiers that texts may mention among other words: a pattern, and the share of values above which the column is
identifying."""

HOUSEHOLD_WORDS = re.compile(r"hh|house_?hold|family|fam|haushalt|familie|menage|hogar|famiglia|huishouden|agregado")
"""Names of columns that may number households; their values decide."""

NUMBER_WORDS = re.compile(rf"(?:[a-z0-9]+_)*(?:{_NUMBER})|[a-z]+(?:nummer|nr)|id_[a-z_]+")
"""Names of columns that may number persons or wards; their values decide."""


_ONE_OF_THE_PEOPLE = (
    "patient(?:en|in)?|person|customer|client|member|citizen|resident|voter|subject|participant|respondent|insured|"
    "subscriber|student|pupil|kunden?|versicherten?|einwohner|schueler|studenten?|mandant(?:en)?|cliente|paciente|paziente|"
    "klant|inwoner|aluno|alumno|etudiant|studente"
)
_NUMBER_OF_A_PERSON = re.compile(
    rf"(?:[a-z]+_)?(?:{_ONE_OF_THE_PEOPLE})_?(?:{_NUMBER})|ssn|social_security_(?:{_NUMBER})"
)


def is_person_number(name: str) -> bool:
    """Whether a column is named like an identifier of the persons in a table, not of those who serve them.

    >>> [is_person_number(name) for name in ("PatientID", "customer_no", "doctor_id", "id")]
    [True, True, False, False]
    """
    return _NUMBER_OF_A_PERSON.fullmatch(split_words(name)) is not None


def find_special_category(name: str) -> str | None:
    """Find the kind of a column named like health, or like belief, politics, sexual life or crime; None for others.

    Others of GDPR's articles 9 and 10, such as ethnicity, are quasi-identifiers to `suggest`.

    >>> [find_special_category(name) for name in ("HbA1c", "religion", "health_insurance")]
    ['health', 'belief, politics, sexual life, crime', None]
    """
    kind = find_kind(name)
    return kind.name if kind is not None and kind.name in (HEALTH, BELIEF) else None


def split_words(name: str) -> str:
    """Split the name of a column into words, in lower case, without accents, joined by ``_``.

    >>> split_words("Geburts-Datum"), split_words("ZIPCode2"), split_words("Straße"), split_words("prénom")
    ('geburts_datum', 'zip_code_2', 'strasse', 'prenom')
    """
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFC", name).translate(_GERMAN))
    plain = "".join(character for character in plain if not unicodedata.combining(character))
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[A-Za-z])(?=\d)", "_", plain)
    return re.sub(r"[^0-9a-z]+", "_", plain.lower()).strip("_")


def find_kind(name: str) -> Kind | None:
    """Find the kind of a column by its name.

    >>> find_kind("PatientName").name, find_kind("plz").role, find_kind("Geburtsdatum").name
    ('names', 'quasi', 'dates: of birth')
    >>> find_kind("flag") is None
    True
    """
    words = split_words(name)
    if (kind := _match_kind(words)) is not None:
        return kind
    kinds = (_match_kind(part) for part in _without_affixes(words))
    return next((kind for kind in kinds if kind is not None and kind.role in _ROLES_OF_PARTS), None)


def _match_kind(words: str) -> Kind | None:
    spellings = {words, re.sub(r"_\d+$", "", words), words.replace("_", "")}
    for kind in KINDS:
        if kind.words is not None and any(re.fullmatch(kind.words, spelling) for spelling in spellings):
            return kind
    return None


_ROLES_OF_PARTS = ("identifying", "quasi")
"""The roles that a part of a name may indicate. Other roles, which are released unchanged, require the whole name."""

_PREFIXES = re.compile(
    rf"(?:{_PERSON}|my|the|home|current|primary|main|own|last|first|raw|orig|original|new|old|ref|src|dim|col|fld|c|p|x)_"
)
_SUFFIXES = re.compile(
    r"_(?:code|cd|value|val|text|txt|desc|description|cat|category|class|grp|group|raw|clean|recoded|key)"
)
_LETTER = re.compile(r"[insfvc](?=[a-z]{3})")
"""A letter for the type before a name: `iage`, `sCity`."""


def _without_affixes(words: str) -> Iterator[str]:
    """Strip common prefixes and suffixes from a name.

    >>> [*_without_affixes("patient_sex_cd")], [*_without_affixes("isex")]
    (['sex_cd', 'patient_sex', 'sex'], ['sex'])
    """
    before = _PREFIXES.match(words)
    after = re.search(rf"(?:{_SUFFIXES.pattern})$", words)
    start, end = before.end() if before else 0, after.start() if after else len(words)
    if start:
        yield words[start:]
    if end < len(words):
        yield words[:end]
    if start and start < end < len(words):
        yield words[start:end]
    if _LETTER.match(words):
        yield words[1:].lstrip("_")
